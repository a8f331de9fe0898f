from privinf.federation.flower import server_app
from pvapp.analysis import fit

app = server_app(fit, timeout=90.0, patience=600.0)
