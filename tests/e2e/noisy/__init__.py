"""An app whose tools print, and wait until they are cancelled."""
