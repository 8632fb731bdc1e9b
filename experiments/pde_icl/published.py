"""Numbers of arXiv 2509.06322 and its published arrays, for tables and figures.

Llama-3.1-8B, Llama-3.2-3B and Llama-3.2-1B, base models, sampled at temperature 0.6, top-p
0.9 and top-k 50 under the free grammar; N_X = 14 unless said otherwise.
"""

from __future__ import annotations

import numpy as np

#: One-step RMSE of Allen-Cahn over 50 initial conditions by N_T.
CONTEXT_ROWS = np.array([2, 4, 6, 10, 20, 40])
CONTEXT_RMSE = {
    "Llama-3.1-8B": np.array([0.4188, 0.0419, 0.0119, 0.0039, 0.0025, 0.0012]),
    "Llama-3.2-3B": np.array([0.4777, 0.1617, 0.0152, 0.0050, 0.0023, 0.0016]),
    "Llama-3.2-1B": np.array([0.3366, 0.1025, 0.0429, 0.0353, 0.0071, 0.0023]),
}
#: Mean entropy of the processed distribution, nats, Allen-Cahn by N_T.
ENTROPY_ROWS = np.array([2, 4, 6, 8, 10, 20, 40])
ENTROPY = {
    "Llama-3.1-8B": np.array([0.94, 1.27, 1.11, 0.87, 0.75, 0.50, 0.28]),
    "Llama-3.2-3B": np.array([1.38, 1.68, 1.30, 0.88, 0.74, 0.59, 0.36]),
    "Llama-3.2-1B": np.array([1.65, 1.90, 2.31, 2.19, 2.04, 0.92, 0.40]),
}
#: One-step RMSE of Allen-Cahn by N_X at N_T = 50.
RESOLUTIONS = np.array([2, 10, 20, 40])
RESOLUTION_RMSE = {
    "Llama-3.1-8B": np.array([0.0004, 0.0010, 0.0011, 0.0018]),
    "Llama-3.2-3B": np.array([0.0005, 0.0010, 0.0014, 0.0028]),
    "Llama-3.2-1B": np.array([0.0007, 0.0015, 0.0032, 0.0222]),
}
#: Exponents of RMSE in roll-outs of ten steps, n = 4 .. 10, by problem.
ROLLOUT_EXPONENT = {
    "allen_cahn": {"Llama-3.1-8B": 1.344, "Llama-3.2-3B": 1.535, "Llama-3.2-1B": 1.203},
    "fisher_kpp": {"Llama-3.1-8B": 1.606, "Llama-3.2-3B": 1.741, "Llama-3.2-1B": 0.948},
    "heat_dirichlet": {"Llama-3.1-8B": 1.378, "Llama-3.2-3B": 1.408, "Llama-3.2-1B": 1.044},
    "heat_neumann": {"Llama-3.1-8B": 1.305, "Llama-3.2-3B": 1.371, "Llama-3.2-1B": 1.007},
    "wave": {"Llama-3.1-8B": 1.741, "Llama-3.2-3B": 1.608, "Llama-3.2-1B": 1.110},
}
#: RMSE of Allen-Cahn roll-outs at n = 1 and 10; at Chebyshev points; the integral's change in
#: percent (heat equation without flux) at n = 1 and 10.
ROLLOUT_STEPS = np.array([1, 10])
ROLLOUT_RMSE = {
    "Llama-3.1-8B": np.array([0.00185, 0.0252]),
    "Llama-3.2-3B": np.array([0.0019, 0.0342]),
    "Llama-3.2-1B": np.array([0.0055, 0.0548]),
}
CHEBYSHEV_RMSE = {
    "Llama-3.1-8B": np.array([0.0014, 0.0158]),
    "Llama-3.2-3B": np.array([0.0021, 0.0262]),
    "Llama-3.2-1B": np.array([0.0041, 0.0495]),
}
CONSERVATION = {
    "Llama-3.1-8B": np.array([0.85, 0.75]),
    "Llama-3.2-3B": np.array([0.87, 1.03]),
    "Llama-3.2-1B": np.array([0.94, 1.90]),
}
#: RMSE of Allen-Cahn roll-outs of fifteen steps at n = 1, 5, 10 and 15.
LONG_STEPS = np.array([1, 5, 10, 15])
LONG_RMSE = {
    "Llama-3.1-8B": np.array([0.0022, 0.0105, 0.0253, 0.0497]),
    "AR(1)": np.array([0.0054, 0.0309, 0.0730, 0.1278]),
}
