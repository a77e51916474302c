"""The console's pages. Every module in this folder is imported, and has a Blueprint ``page``.

A page reads AWS's API through ``console.account_cache`` and renders a template; nothing on a page
changes anything but through ``console.actions``. To add a page: a module and its template.
"""
