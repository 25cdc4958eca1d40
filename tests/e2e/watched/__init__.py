"""An app whose tools tell what the server holds, and wait for as long as it takes."""
