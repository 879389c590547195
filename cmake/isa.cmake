# The kernels of backend/cpu are compiled once per instruction set, each copy in a namespace of its own (QUERN_ISA), and the
# best copy that the processor runs is chosen at start (ops/kernel.h). The portable copy comes first on the link line, so
# that code shared between copies (templates of the standard library) is taken from the copy that runs everywhere.
# No -march=native anywhere, and no contraction: a*b+c rounds as written, fused operations are asked for by name.
set(quern_isa_portable_flags "")
set(quern_isa_avx2_flags -march=x86-64-v3)
set(quern_isa_avx512_flags -march=x86-64-v4 -mavx512vnni)

function(quern_instruction_sets sources)
  set(objects "")
  foreach(isa portable avx2 avx512)
    add_library(backend_${isa} OBJECT ${sources})
    target_compile_definitions(backend_${isa} PRIVATE QUERN_ISA=${isa})
    target_compile_options(backend_${isa} PRIVATE ${quern_isa_${isa}_flags} $<$<CONFIG:Release>:-O3> -ffp-contract=off)
    list(APPEND objects $<TARGET_OBJECTS:backend_${isa}>)
  endforeach()
  set(quern_isa_objects "${objects}" PARENT_SCOPE)
endfunction()
