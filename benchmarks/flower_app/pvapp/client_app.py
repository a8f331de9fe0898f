from privinf.federation.flower import client_app

app = client_app()
