"""The dashboard: runs, sweeps and plans in a browser. Installed as ``kvsim.dashboards``.

The only importer of Streamlit, plotly and pandas. A page reads what is on disk, or asks kvsim to replay;
figures are pure functions of what analysis returns.
"""
