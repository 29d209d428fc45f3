# SPDX-License-Identifier: BSD-3-Clause
"""What the peer tests and the demonstration share: namespaces, processes, guests and traffic."""
