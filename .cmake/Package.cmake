# What `cpack` makes: a Debian package of all that install() takes. Made by ./dev package, with shared libraries.

set(CPACK_PACKAGE_NAME shoal)
set(CPACK_PACKAGE_VENDOR shoal)
set(CPACK_PACKAGE_CONTACT "shoal <shoal@localhost>")   # a maintainer's address is Debian's rule; who packs says his own
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)   # the preset's, too, by which libraries lie in Debian's folder of the architecture
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE "${PROJECT_HOMEPAGE_URL}")
# What its headers include. libtorch is no Debian package: find_package(shoal) looks for it by Torch_DIR.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libfmt-dev, libboost-dev (>= 1.74)")
if(SHOAL_TENSORS)
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", zlib1g-dev, libjpeg-dev, libpng-dev")
endif()
# The libraries that programs and shared libraries are linked with, as dpkg-shlibdeps finds them; shoal's and libtorch's lie in
# no other package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/ipc ${PROJECT_BINARY_DIR}/runtime)
if(SHOAL_TENSORS)
  get_filename_component(torch_libraries "${Libtorch_CPU_LIBRARY}" DIRECTORY)
  list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/tensors ${PROJECT_BINARY_DIR}/workers ${torch_libraries})
endif()
include(CPack)
