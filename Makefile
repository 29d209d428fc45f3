# SPDX-License-Identifier: BSD-3-Clause
# A thin front for meson: see `make help`. All that is built stays in build/ and build-*/.
BUILD := build
export PYTHONDONTWRITEBYTECODE := 1
# In continuous integration a warning is an error.
WERROR := $(if $(filter true,$(CI)),true,false)

.DEFAULT_GOAL := all
.PHONY: all demo test install help clean asan tsan lint deps-build deps-demo deps-test

help:
	@echo "make           build the program, $(BUILD)/virtwire, and the library"
	@echo "make demo      boot a guest on it, exchange traffic, report; leaves nothing behind"
	@echo "make test      all tests: unit, model, fuzz, real peers, sanitizers, lint (10-15 minutes)"
	@echo "make lint      clang-tidy and cppcheck"
	@echo "make asan      build-asan/virtwire, with AddressSanitizer and UBSan"
	@echo "make tsan      build-tsan/virtwire, with ThreadSanitizer"
	@echo "make install   install under PREFIX (/usr/local), below DESTDIR if that is set"
	@echo "make clean     remove all that was built"
	@echo
	@echo "On Debian each target first installs the packages that it lacks (with sudo unless root);"
	@echo "contrib/deps.sh lists them. Only one test: meson test -C $(BUILD) -v NAME"
	@echo "(meson test -C $(BUILD) --list names them)."

all: deps-build
	@contrib/configure.sh $(BUILD) -Dwerror=$(WERROR)
	@ninja -C $(BUILD) installable

demo: deps-demo all
	@python3 demo/demo.py

test: deps-test
	@tests/run

lint: deps-test
	@contrib/configure.sh $(BUILD) -Dwerror=$(WERROR)
	@meson test -C $(BUILD) --suite lint --logbase lint --print-errorlogs

asan: deps-build
	@contrib/configure.sh build-asan -Dwerror=$(WERROR) -Db_sanitize=address,undefined
	@ninja -C build-asan

tsan: deps-build
	@contrib/configure.sh build-tsan -Dwerror=$(WERROR) -Db_sanitize=thread
	@ninja -C build-tsan

# PREFIX goes to meson only if it is given: otherwise what the build tree has stays.
install:
	@test -x $(BUILD)/virtwire || { echo "make install: run make first" >&2; exit 1; }
	@$(if $(PREFIX),meson configure $(BUILD) -Dprefix=$(PREFIX) && ninja -C $(BUILD) --quiet installable)
	@meson install -C $(BUILD) --no-rebuild $(if $(DESTDIR),--destdir "$(abspath $(DESTDIR))")

clean:
	@rm -rf $(BUILD) build-asan build-tsan

deps-build deps-demo deps-test: deps-%:
	@contrib/deps.sh $* $(BUILD)
