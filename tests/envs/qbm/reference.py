"""Gibbs states from Kronecker products and `scipy.linalg.expm`: nothing of the library."""

from __future__ import annotations

import functools

import numpy as np
from scipy.linalg import expm, expm_frechet
from scipy.optimize import root

PAULI = {
    "I": np.eye(2),
    "X": np.array([[0, 1], [1, 0]]),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.diag([1, -1]),
}


def operator(label):
    return functools.reduce(np.kron, [PAULI[letter] for letter in label], np.eye(1))


def exponent(parameters, labels):
    return sum(t * operator(label) for t, label in zip(parameters, labels, strict=True))


def log_partition(parameters, labels):
    return np.log(np.trace(expm(exponent(parameters, labels))).real)


def state(parameters, labels):
    matrix = expm(exponent(parameters, labels))
    return matrix / np.trace(matrix).real


def moments(matrix, labels):
    return np.array([np.trace(matrix @ operator(label)).real for label in labels])


def bits(matrix, visible):
    """Probabilities of the first `visible` qubits."""
    return np.diag(matrix).real.reshape(2**visible, -1).sum(1)


def e_step(matrix, visible, target):
    """The state `sum_v q(v) |v><v| (x) rho_{H|v}` of a block diagonal one."""
    count = 2**visible
    size = len(matrix) // count
    sigma = np.zeros_like(matrix)
    for v in range(count):
        block = slice(v * size, (v + 1) * size)
        sigma[block, block] = target[v] * matrix[block, block] / np.trace(matrix[block, block]).real
    return sigma


def bkm(parameters, labels):
    """`int_0^1 Tr(rho^s F_a rho^(1-s) F_b) ds - eta_a eta_b` by Gauss and Legendre's rule."""
    operators = [operator(label) for label in labels]
    logarithm = exponent(parameters, labels) - log_partition(parameters, labels) * np.eye(
        len(operators[0])
    )
    nodes, weights = np.polynomial.legendre.leggauss(24)
    eta = moments(expm(logarithm), labels)
    total = -np.outer(eta, eta)
    for s, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        left, right = expm(s * logarithm), expm((1 - s) * logarithm)
        for a, first in enumerate(operators):
            product = left @ first @ right
            for b, second in enumerate(operators):
                total[a, b] += weight * np.trace(product @ second).real
    return total


def bures(parameters, labels):
    """From symmetric logarithmic derivatives, `Tr(d_a rho L_b)`."""
    h, rho = exponent(parameters, labels), state(parameters, labels)
    partition = np.exp(log_partition(parameters, labels))
    eta = moments(rho, labels)
    size = len(rho)
    changes = [
        expm_frechet(h, operator(label), compute_expm=False) / partition - e * rho
        for label, e in zip(labels, eta, strict=True)
    ]
    lyapunov = (np.kron(rho, np.eye(size)) + np.kron(np.eye(size), rho.T)) / 2
    logs = [np.linalg.solve(lyapunov, change.ravel()).reshape(size, size) for change in changes]
    return np.array([[np.trace(c @ log).real for log in logs] for c in changes])


def wigner_yanase(parameters, labels):
    """From derivatives of the square root, `4 Tr(d_a sqrt(rho) d_b sqrt(rho))`."""
    half = exponent(parameters, labels) / 2
    eta = moments(state(parameters, labels), labels)
    scale = np.exp(-log_partition(parameters, labels) / 2)
    changes = [
        scale * (expm_frechet(half, operator(label) / 2, compute_expm=False) - e / 2 * expm(half))
        for label, e in zip(labels, eta, strict=True)
    ]
    return 4 * np.array([[np.trace(a @ b).real for b in changes] for a in changes])


def em(parameters, labels, visible, target, steps):
    """Divergences after each em step whose m-step scipy's root finder solves."""
    found = []
    for _ in range(steps):
        goal = moments(e_step(state(parameters, labels), visible, target), labels)
        solution = root(
            lambda x, goal=goal: moments(state(x, labels), labels) - goal, parameters, tol=1e-13
        )
        parameters = solution.x
        found.append(kl(target, bits(state(parameters, labels), visible)))
    return np.array(found)


def kl(target, probabilities):
    kept = target > 0
    return float(np.sum(target[kept] * np.log(target[kept] / probabilities[kept])))
