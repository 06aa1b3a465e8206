"""Events turned into what people look at."""
