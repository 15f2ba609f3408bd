"""How it feels: widgets of a page. They know no World: traits in, messages out."""
