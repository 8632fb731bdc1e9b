"""WorldTest on Autumn worlds: hidden frames, goals, changed rules; agents beside published scores."""
