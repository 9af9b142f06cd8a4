"""The page: ask, workbench, inside, runs and report, in a browser and as JSON."""
