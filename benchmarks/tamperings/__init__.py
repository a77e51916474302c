"""Does the record name every tampering with what it covers?"""
