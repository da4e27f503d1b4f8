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
  endif()
endfunction()
