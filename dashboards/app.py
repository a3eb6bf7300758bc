"""The router: which page the address asks for, in which language."""

from __future__ import annotations

import streamlit as st
from kvsim.dashboards import pages

if __name__ == "__main__":
    st.set_page_config(page_title="kvsim", page_icon=pages.ICON, layout="wide")
    desk = pages.desk()
    st.navigation(pages.menu(desk), expanded=True).run()
