# revision.cc: the commit that is built, for what measures. Made again when the commit changes.
# As a script (cmake -DOUT=FILE -P): writes it. Included: says how.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git rev-parse --short=12 HEAD OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE
                  ERROR_QUIET)
  file(WRITE ${OUT} "#include \"apps/measure/machine_facts.h\"\n
namespace quern {\nconst std::string_view git_hash = \"${hash}\";\n}  // namespace quern\n")
  return()
endif()

execute_process(COMMAND git rev-parse --path-format=absolute --git-path logs/HEAD WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                OUTPUT_VARIABLE commits OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT EXISTS "${commits}")
  set(commits "")
endif()
set(quern_revision ${CMAKE_BINARY_DIR}/revision.cc)
add_custom_command(OUTPUT ${quern_revision}
                   COMMAND ${CMAKE_COMMAND} -DOUT=${quern_revision} -P ${CMAKE_SOURCE_DIR}/cmake/revision.cmake
                   WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} DEPENDS ${commits} VERBATIM)
