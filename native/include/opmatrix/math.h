// The functions that most kernels need of <cmath>, which takes longer to compile than the rest of a kernel (0.1 s).
// A kernel that needs more includes <cmath>.
#pragma once

namespace opmatrix {

/// The square root; NaN below 0.
inline float sqrt(float x) {
  return __builtin_sqrtf(x);
}
inline double sqrt(double x) {
  return __builtin_sqrt(x);
}

/// The largest whole number that is not above x.
inline float floor(float x) {
  return __builtin_floorf(x);
}
inline double floor(double x) {
  return __builtin_floor(x);
}

}  // namespace opmatrix
