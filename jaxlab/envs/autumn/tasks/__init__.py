"""Tasks in Autumn worlds: hidden frames, goals, changed rules; how they are made, run and scored."""
