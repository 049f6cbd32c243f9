"""Applied apps: typed pushes, applying, schedules."""
