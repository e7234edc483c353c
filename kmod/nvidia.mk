# SPDX-License-Identifier: GPL-2.0 OR MIT
# Sets NV_P2P_H to the driver's own header of its peer-to-peer interface, empty when there is none.
# NVIDIA_SRC says where: the folder itself, a driver's kernel-open/ or kernel/, or what holds those.

nv_p2p_places = $(1)/nv-p2p.h $(1)/nvidia/nv-p2p.h $(1)/nvidia-peermem/nv-p2p.h \
	$(1)/kernel-open/nvidia/nv-p2p.h $(1)/kernel/nvidia/nv-p2p.h

# The newest driver's, where several are installed.
nv_p2p_usual = $(shell ls -d /usr/src/nvidia-*[0-9]* /usr/src/nvidia-open-* \
	/usr/src/open-gpu-kernel-modules* /usr/src/nvidia-current* 2>/dev/null | sort -rV)

ifeq ($(PINDOWN_TEGRA),)
ifeq ($(NVIDIA_SRC),)
NV_P2P_H := $(firstword $(wildcard $(foreach place,$(nv_p2p_usual),$(call nv_p2p_places,$(place)))))
else ifneq ($(NVIDIA_SRC),none)
NV_P2P_H := $(firstword $(wildcard $(call nv_p2p_places,$(abspath $(NVIDIA_SRC)))))
ifeq ($(NV_P2P_H),)
$(error NVIDIA_SRC=$(NVIDIA_SRC): no nv-p2p.h there, nor in its nvidia/, nvidia-peermem/, \
	kernel-open/nvidia/ or kernel/nvidia/)
endif
endif
endif
