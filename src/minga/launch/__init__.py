"""Starting the processes of a run and seeing them to their end."""
