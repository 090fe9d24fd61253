// The two operators whose smallest call calls.py measures: each peer calls these kernels, the ones of the operators.
#pragma once

#include "dual_residual.h"
#include "compute.h"

inline constexpr char kGroupNorm[] =
    "group_norm(Tensor x, Tensor num_groups, Tensor scale, Tensor bias, float eps) -> Tensor";
inline constexpr char kDualResidual[] = "dual_residual(Tensor x, Tensor y, float alpha) -> (Tensor, Tensor)";
