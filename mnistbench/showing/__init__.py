"""How is any result shown: tables, reports, and the formats that draw them."""
