"""Published answers of AWS, asked of the emulator."""
