"""The applied specs of a server: their compiled declarations, applying them, typed pushes, and schedules."""
