"""`skep bench peers`: Skep beside what somebody would pick instead, in one run, with one loader and the same durability."""
