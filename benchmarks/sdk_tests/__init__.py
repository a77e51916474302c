"""AWS's own integration tests of its SDK against the emulator, judged by what really ran."""
