// The exception of a failed KERNEL_CHECK (opmatrix/check.h). Bindings turn it into a Python exception or an OrtStatus.
#pragma once

#include <exception>
#include <initializer_list>

#include "opmatrix/check.h"

namespace opmatrix {

/// The whole message, without file and line, so that an edited comment changes no byte of a library.
class Error : public std::exception {
 public:
  Error(std::initializer_list<Part> parts) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[1024] = "";  // longer messages are cut
};

}  // namespace opmatrix
