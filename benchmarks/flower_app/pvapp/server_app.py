from privinf.federation.flower import server_app
from pvapp.analysis import failed, fit

app = server_app(fit, failed=failed, timeout=90.0, patience=600.0)
