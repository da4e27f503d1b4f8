# Compiler settings of every target of ours.
function(epmoe_compile_options target)
  # Product and sum are rounded separately everywhere, so that results do not depend on the ISA (design: determinism).
  # Nobody reads floating-point exception flags; without -fno-trapping-math g++ leaves loops with selects scalar.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -ffp-contract=off -fno-trapping-math)
  if(EPMOE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(EPMOE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=address,undefined)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/no_dlclose.cpp")
      target_link_options(${target} PRIVATE -rdynamic)
    endif()
  endif()
endfunction()
