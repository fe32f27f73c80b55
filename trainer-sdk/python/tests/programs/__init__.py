"""Programs that tests train; each is a script, too."""
