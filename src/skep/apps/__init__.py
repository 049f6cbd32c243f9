"""The applied specs of a server: what they declare, compiled; how they are applied; typed pushes; and schedules."""
