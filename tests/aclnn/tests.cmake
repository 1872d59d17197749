# Tests of the C face. Those of the runtime are black boxes over the library, but for the few that look inside.
if(NOT TARGET onehot_aclnn)
  return()
endif()

onehot_test(aclnn_runtime_test
  SOURCES
    aclnn/abi_test.cpp
    aclnn/runtime_base_test.cpp
    aclnn/runtime_callback_test.cpp
    aclnn/runtime_device_test.cpp
    aclnn/runtime_error_test.cpp
    aclnn/runtime_init_test.cpp
    aclnn/runtime_memory_test.cpp
    aclnn/runtime_stream_test.cpp
  LIBS onehot_aclnn)
onehot_test(aclnn_runtime_internal_test SOURCES aclnn/runtime_internal_test.cpp LIBS onehot_aclnn_objects)

# ---- headers: each one alone, twice in a row, as C99 and as C++11, by the letter of the standard
set(alone ${CMAKE_CURRENT_BINARY_DIR}/headers_alone)
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_SOURCE_DIR}/include/acl/*.h ${PROJECT_SOURCE_DIR}/include/aclnn/*.h ${PROJECT_SOURCE_DIR}/include/aclnnop/*.h)
set(declared "")
foreach(header IN LISTS public_headers)
  string(MAKE_C_IDENTIFIER ${header} stem)
  # A translation unit without a declaration is not C99.
  set(text "#include \"${header}\"\n#include \"${header}\"\ntypedef int ${stem}_stands_alone;\n")
  foreach(language c cpp)
    file(CONFIGURE OUTPUT ${alone}/${stem}.${language} CONTENT "${text}" @ONLY)
    list(APPEND alone_${language} ${alone}/${stem}.${language})
  endforeach()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/${header})
  file(READ ${PROJECT_SOURCE_DIR}/include/${header} source)
  string(REGEX MATCHALL "ACL_FUNC_VISIBILITY[^;(]*[ *]([A-Za-z0-9_]+)\\(" functions "${source}")
  foreach(function IN LISTS functions)
    string(REGEX REPLACE "^.*[ *]([A-Za-z0-9_]+)\\($" "\\1" name "${function}")
    if(name MATCHES "^[aA]cl")
      string(APPEND declared "\"${name}\",\n")
    endif()
  endforeach()
endforeach()
add_library(aclnn_headers_c99 OBJECT ${alone_c})
set_target_properties(aclnn_headers_c99 PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
add_library(aclnn_headers_cxx11 OBJECT ${alone_cpp})
set_target_properties(aclnn_headers_cxx11 PROPERTIES CXX_STANDARD 11 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
foreach(target aclnn_headers_c99 aclnn_headers_cxx11)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(${target} PRIVATE -pedantic -Wall -Wextra -Werror)
endforeach()

# ---- exports
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/aclnn_declared.inc CONTENT "${declared}" @ONLY)
onehot_test(aclnn_exports_test SOURCES aclnn/exports_test.cpp LIBS ${CMAKE_DL_LIBS})
target_include_directories(aclnn_exports_test PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_compile_definitions(aclnn_exports_test PRIVATE ONEHOT_COMPAT_DIR="${PROJECT_BINARY_DIR}/lib/onehot/compat")
add_dependencies(aclnn_exports_test onehot_aclnn)

include(aclnn/operators.cmake OPTIONAL)
