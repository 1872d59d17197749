# What an installation holds. Everything in it finds everything else by relative paths, so that it may be moved, and so that
# `cmake --install --prefix` may name another place than the one configured.
#
#   bin/onehot
#   include/{onehot,acl,aclnn,aclnnop}
#   lib/libonehot.so, lib/libonehot_aclnn.so, lib/cmake/onehot, lib/pkgconfig
#   lib/onehot/compat/             the C face under the names that its clients link; apart, so that it shadows nothing unasked
#   share/onehot/aclnn-env.sh      to be sourced by builds written for the vendor's layout
#   share/onehot/ascend-toolkit/   that layout, as links
include(CMakePackageConfigHelpers)

# GNUInstallDirs allows absolute directories; links between them can only be relative if they lie below the prefix.
foreach(dir BINDIR LIBDIR INCLUDEDIR DATADIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    message(FATAL_ERROR "CMAKE_INSTALL_${dir} = ${CMAKE_INSTALL_${dir}} must be relative to the prefix")
  endif()
  set(ONEHOT_RELATIVE_${dir} ${CMAKE_INSTALL_${dir}})
endforeach()
set(onehot_data ${CMAKE_INSTALL_DATADIR}/onehot)
set(onehot_package ${CMAKE_INSTALL_LIBDIR}/cmake/onehot)
set(ONEHOT_COMPAT_DIR ${CMAKE_INSTALL_LIBDIR}/onehot/compat)

# onehot_path(RESULT FROM TO): the relative path between two directories below the prefix.
function(onehot_path result from to)
  file(RELATIVE_PATH path /${from} /${to})
  string(REGEX REPLACE "/$" "" path "${path}")
  set(${result} ${path} PARENT_SCOPE)
endfunction()

# ---- libraries, headers, the tool
install(TARGETS onehot EXPORT onehot LIBRARY FILE_SET HEADERS)
if(TARGET onehot_aclnn)
  # $ORIGIN is the directory by whose name the library was opened: lib, or lib/onehot/compat.
  set_target_properties(onehot_aclnn PROPERTIES EXPORT_NAME aclnn INSTALL_RPATH "$ORIGIN;$ORIGIN/../..")
  install(TARGETS onehot_aclnn EXPORT onehot LIBRARY FILE_SET HEADERS)
endif()
if(TARGET onehot_cli)
  onehot_path(bin_to_lib ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR})
  set_target_properties(onehot_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS onehot_cli RUNTIME)
endif()

# ---- find_package and pkg-config
install(EXPORT onehot NAMESPACE onehot:: FILE onehot-targets.cmake DESTINATION ${onehot_package})
configure_package_config_file(cmake/onehot-config.cmake.in onehot-config.cmake
  INSTALL_DESTINATION ${onehot_package} PATH_VARS ONEHOT_COMPAT_DIR)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(onehot-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/onehot-config.cmake ${PROJECT_BINARY_DIR}/onehot-config-version.cmake
        DESTINATION ${onehot_package})

onehot_path(ONEHOT_PC_TO_PREFIX ${CMAKE_INSTALL_LIBDIR}/pkgconfig "")
configure_file(cmake/onehot.pc.in onehot.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onehot.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT TARGET onehot_aclnn)
  return()
endif()
configure_file(cmake/onehot_aclnn.pc.in onehot_aclnn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/onehot_aclnn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- names and layout that programs for the aclnn interface expect. The links are made here, dangling, and installed as
# links: they point where they should once installed.
set(links ${PROJECT_BINARY_DIR}/install-links)
file(REMOVE_RECURSE ${links})

# onehot_link(PATH TARGET): PATH, below the prefix, becomes a link to TARGET, below the prefix too.
function(onehot_link path target)
  cmake_path(GET path PARENT_PATH folder)
  onehot_path(relative ${folder} ${target})
  file(MAKE_DIRECTORY ${links}/${folder})
  file(CREATE_LINK ${relative} ${links}/${path} SYMBOLIC)
endfunction()

# The library's own name is among them for programs that were linked through the others, and so ask for its soname.
set(soname libonehot_aclnn.so.${PROJECT_VERSION_MAJOR})
foreach(name libascendcl.so libnnopbase.so libopapi.so libacl_op_compiler.so ${soname})
  onehot_link(${ONEHOT_COMPAT_DIR}/${name} ${CMAKE_INSTALL_LIBDIR}/${soname})
endforeach()

# The toolkit's include holds only the headers of the interface, not whatever else lies in the prefix.
set(toolkit ${onehot_data}/ascend-toolkit/latest)
foreach(folder acl aclnn aclnnop)
  onehot_link(${toolkit}/include/${folder} ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
onehot_link(${toolkit}/lib64 ${ONEHOT_COMPAT_DIR})
foreach(part acllib fwkacllib)
  onehot_link(${toolkit}/${part}/lib64 ${toolkit}/lib64)
  onehot_link(${toolkit}/${part}/include ${toolkit}/include)
endforeach()
install(DIRECTORY ${links}/ DESTINATION .)

# Builds read a version here. It is that of the toolkit whose documents the headers follow; ours is in onehot_aclnn.pc.
set(ONEHOT_TOOLKIT_VERSION 8.2.RC1)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(toolkit_arch arm64)
else()
  set(toolkit_arch ${CMAKE_SYSTEM_PROCESSOR})
endif()
file(WRITE ${PROJECT_BINARY_DIR}/ascend_toolkit_install.info
     "package_name=onehot\nversion=${ONEHOT_TOOLKIT_VERSION}\narch=${toolkit_arch}\nos=linux\n")
install(FILES ${PROJECT_BINARY_DIR}/ascend_toolkit_install.info DESTINATION ${toolkit}/${toolkit_arch}-linux)
file(WRITE ${PROJECT_BINARY_DIR}/version.info "Version=${PROJECT_VERSION}\n")
install(FILES ${PROJECT_BINARY_DIR}/version.info DESTINATION ${onehot_data}/driver)

# The script holds the prefix for shells that cannot tell where a sourced file lies, so it is written when installing.
onehot_path(ONEHOT_DATADIR_TO_PREFIX ${onehot_data} "")
install(CODE "
  set(ONEHOT_RELATIVE_DATADIR \"${ONEHOT_RELATIVE_DATADIR}\")
  set(ONEHOT_DATADIR_TO_PREFIX \"${ONEHOT_DATADIR_TO_PREFIX}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/share/onehot/aclnn-env.sh.in\" \"${PROJECT_BINARY_DIR}/aclnn-env.sh\" @ONLY)
  file(INSTALL \"${PROJECT_BINARY_DIR}/aclnn-env.sh\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${onehot_data}\")")
