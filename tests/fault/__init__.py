"""Crashes, cut connections, full disks, clock jumps."""
