// What a failed check throws, and how bindings see it.
#pragma once

#include <exception>
#include <initializer_list>

#include "opmatrix/check.h"

namespace opmatrix {

/// The text is the whole message: no file, no line, so that an edited comment changes no byte of a library.
class Error : public std::exception {
 public:
  Error(std::initializer_list<Part> parts) noexcept;
  const char* what() const noexcept override { return text_; }

 private:
  char text_[1024] = "";  // longer texts are cut
};

}  // namespace opmatrix
