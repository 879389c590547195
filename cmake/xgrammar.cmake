# XGrammar (structured output), from a pinned source archive, as a plain static library: no Python of it, and as C++17 only.
# Its warnings are its own; text/constraint/ is the only place that includes it.
execute_process(COMMAND tools/fetch_sources WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "tools/fetch_sources could not download XGrammar's sources with pip")
endif()
set(xgrammar ${CMAKE_SOURCE_DIR}/build/sources/xgrammar-0.2.8)
file(GLOB xgrammar_sources ${xgrammar}/cpp/*.cc ${xgrammar}/cpp/support/*.cc ${xgrammar}/cpp/converter_ext/*.cc)
list(FILTER xgrammar_sources EXCLUDE REGEX "support/logging[.]cc$")  # ours is in text/constraint/xgrammar_logging.h
add_library(xgrammar STATIC ${xgrammar_sources})
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden EXPORT_COMPILE_COMMANDS OFF)
target_include_directories(xgrammar SYSTEM PUBLIC ${xgrammar}/include ${xgrammar}/3rdparty/dlpack/include
  PRIVATE ${xgrammar}/3rdparty/picojson)
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
# Its signed overflows and the like are not checked: only what it does to memory.
target_compile_options(xgrammar PRIVATE -w -fno-sanitize=undefined -include ${CMAKE_SOURCE_DIR}/src/text/constraint/xgrammar_logging.h)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
