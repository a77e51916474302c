"""Know before you spend: what is wrong with a recipe or a definition, found offline."""
