from privinf.federation.flower import server_app
from pvapp.analysis import SITES, fit

app = server_app(fit, SITES, timeout=90.0, patience=240.0)
