"""How many tokens a prompt has, before an engine has counted them."""
