# A toolchain file for 64-bit ARM with Debian's cross-compiler. Tests run under qemu's user mode (make arm-test).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Libraries and packages of the target are found before those of the machine that builds.
set(CMAKE_PREFIX_PATH /usr/lib/aarch64-linux-gnu ${CMAKE_PREFIX_PATH})
