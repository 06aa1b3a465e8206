"""What every room uses and what knows none of them: checked configurations, their strings and files, units."""
