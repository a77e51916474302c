"""The gate: its checks as pure functions, and the condition step that reads their verdict."""
