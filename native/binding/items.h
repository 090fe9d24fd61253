// Memory that a binding owns while the kernel sees it as a List or a string.
#pragma once

#include <cstddef>
#include <utility>

#include "opmatrix/list.h"

namespace opmatrix {

/// Owns a contiguous array of T; an empty one allocates nothing.
template <typename T>
class Items {
 public:
  Items() = default;
  explicit Items(std::size_t count) : data_(count == 0 ? nullptr : new T[count]()), count_(count) {}
  Items(Items&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  Items& operator=(Items&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Items() { delete[] data_; }

  T* data() { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t index) { return data_[index]; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }
  List<T> list() const { return {data_, static_cast<std::int64_t>(count_)}; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace opmatrix
