# Files named here are compiled once per instruction set, each copy in a namespace of its own (QUERN_ISA), and the best
# copy that the processor runs is chosen at start. The portable copy comes first on the link line, so that code shared
# between copies (templates of the standard library) is taken from the copy that runs everywhere.
set(quern_hot_files "" CACHE INTERNAL "")
set(quern_isa_portable_flags "")
set(quern_isa_avx2_flags -march=x86-64-v3)
set(quern_isa_avx512_flags -march=x86-64-v4 -mavx512vnni -mavx512bf16)

function(quern_instruction_sets layer)
  file(GLOB hot CONFIGURE_DEPENDS src/backend/cpu/hot/*.cc)
  set(objects "")
  if(hot)
    get_target_property(sources ${layer} SOURCES)
    list(REMOVE_ITEM sources ${hot})
    set_target_properties(${layer} PROPERTIES SOURCES "${sources}")
    foreach(isa portable avx2 avx512)
      add_library(${layer}_${isa} OBJECT ${hot})
      target_compile_definitions(${layer}_${isa} PRIVATE QUERN_ISA=${isa})
      target_compile_options(${layer}_${isa} PRIVATE ${quern_isa_${isa}_flags} -O3 -ffp-contract=off)
      list(APPEND objects $<TARGET_OBJECTS:${layer}_${isa}>)
    endforeach()
  endif()
  set(quern_isa_objects "${objects}" PARENT_SCOPE)
endfunction()
