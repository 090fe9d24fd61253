// A header of somebody else, which compiles with warnings.
#pragma once

template <typename T>
T total(const T* first, const T* last) {
  int unused;
  T sum = 0;
  while (first != last) sum += *first++;
  return sum;
}
