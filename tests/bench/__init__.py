"""How good the diagnosis is, measured on simulated runs that the rules were not tuned on."""
