"""``nvidia-smi -q -x`` of several generations of the driver, with values of our own."""

from __future__ import annotations

MODERN = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
	<timestamp>Tue Jun  9 10:20:30 2026</timestamp>
	<driver_version>590.44.01</driver_version>
	<cuda_version>13.1</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:4E:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<display_mode>Requested functionality has been deprecated</display_mode>
		<persistence_mode>Enabled</persistence_mode>
		<addressing_mode>Unknown Error</addressing_mode>
		<mig_mode>
			<current_mig>Disabled</current_mig>
			<pending_mig>Disabled</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<uuid>GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01</uuid>
		<minor_number>0</minor_number>
		<gpu_virtualization_mode>
			<virtualization_mode>None</virtualization_mode>
			<host_vgpu_mode>N/A</host_vgpu_mode>
		</gpu_virtualization_mode>
		<gpu_recovery_action>None</gpu_recovery_action>
		<pci>
			<pci_bus>4E</pci_bus>
			<pci_bus_id>00000000:4E:00.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>5</max_link_gen>
					<current_link_gen>4</current_link_gen>
					<device_current_link_gen>4</device_current_link_gen>
					<max_device_link_gen>5</max_device_link_gen>
					<max_host_link_gen>4</max_host_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>8x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
			<replay_counter>3</replay_counter>
			<tx_util>1000 KB/s</tx_util>
			<rx_util>2000 KB/s</rx_util>
		</pci>
		<fan_speed>N/A</fan_speed>
		<performance_state>P0</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_applications_clocks_setting>Not Active
			</clocks_event_reason_applications_clocks_setting>
			<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
			<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
			<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
			<clocks_event_reason_sync_boost>Not Active</clocks_event_reason_sync_boost>
			<clocks_event_reason_sw_thermal_slowdown>Active</clocks_event_reason_sw_thermal_slowdown>
			<clocks_event_reason_display_clocks_setting>Not Active</clocks_event_reason_display_clocks_setting>
		</clocks_event_reasons>
		<clocks_event_reasons_counters>
			<clocks_event_reasons_counters_sw_power_cap>5000000 us</clocks_event_reasons_counters_sw_power_cap>
			<clocks_event_reasons_counters_sync_boost>0 us</clocks_event_reasons_counters_sync_boost>
			<clocks_event_reasons_counters_sw_therm_slowdown>2000000 us
			</clocks_event_reasons_counters_sw_therm_slowdown>
			<clocks_event_reasons_counters_hw_therm_slowdown>0 us</clocks_event_reasons_counters_hw_therm_slowdown>
			<clocks_event_reasons_counters_hw_power_brake>0 us</clocks_event_reasons_counters_hw_power_brake>
		</clocks_event_reasons_counters>
		<fb_memory_usage>
			<total>81559 MiB</total>
			<reserved>500 MiB</reserved>
			<used>40000 MiB</used>
			<free>41059 MiB</free>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>131072 MiB</total>
			<used>7 MiB</used>
			<free>131065 MiB</free>
		</bar1_memory_usage>
		<cc_protected_memory_usage>
			<total>0 MiB</total>
			<used>0 MiB</used>
			<free>0 MiB</free>
		</cc_protected_memory_usage>
		<compute_mode>Exclusive_Process</compute_mode>
		<utilization>
			<gpu_util>97 %</gpu_util>
			<memory_util>41 %</memory_util>
			<encoder_util>0 %</encoder_util>
			<decoder_util>0 %</decoder_util>
		</utilization>
		<ecc_mode>
			<current_ecc>Enabled</current_ecc>
			<pending_ecc>Disabled</pending_ecc>
		</ecc_mode>
		<ecc_errors>
			<volatile>
				<sram_correctable>2</sram_correctable>
				<sram_uncorrectable_parity>1</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_correctable>40</dram_correctable>
				<dram_uncorrectable>3</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_correctable>9</sram_correctable>
				<sram_uncorrectable_parity>4</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>2</sram_uncorrectable_secded>
				<dram_correctable>100</dram_correctable>
				<dram_uncorrectable>5</dram_uncorrectable>
				<sram_threshold_exceeded>No</sram_threshold_exceeded>
			</aggregate>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>1</remapped_row_corr>
			<remapped_row_unc>6</remapped_row_unc>
			<remapped_row_pending>Yes</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
			<row_remapper_histogram>
				<row_remapper_histogram_max>2554 bank(s)</row_remapper_histogram_max>
			</row_remapper_histogram>
		</remapped_rows>
		<temperature>
			<gpu_temp>61 C</gpu_temp>
			<gpu_temp_tlimit>26 C</gpu_temp_tlimit>
			<gpu_temp_max_tlimit_threshold>-8 C</gpu_temp_max_tlimit_threshold>
			<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
			<gpu_temp_max_gpu_tlimit_threshold>0 C</gpu_temp_max_gpu_tlimit_threshold>
			<gpu_target_temperature>N/A</gpu_target_temperature>
			<memory_temp>72 C</memory_temp>
			<gpu_temp_max_mem_tlimit_threshold>0 C</gpu_temp_max_mem_tlimit_threshold>
		</temperature>
		<gpu_power_readings>
			<power_state>P0</power_state>
			<average_power_draw>612.40 W</average_power_draw>
			<instant_power_draw>598.10 W</instant_power_draw>
			<current_power_limit>650.00 W</current_power_limit>
			<requested_power_limit>650.00 W</requested_power_limit>
			<default_power_limit>700.00 W</default_power_limit>
			<min_power_limit>200.00 W</min_power_limit>
			<max_power_limit>700.00 W</max_power_limit>
		</gpu_power_readings>
		<gpu_memory_power_readings>
			<average_power_draw>90.10 W</average_power_draw>
		</gpu_memory_power_readings>
		<module_power_readings>
			<average_power_draw>900.00 W</average_power_draw>
			<current_power_limit>1000.00 W</current_power_limit>
		</module_power_readings>
		<clocks>
			<graphics_clock>1700 MHz</graphics_clock>
			<sm_clock>1695 MHz</sm_clock>
			<mem_clock>2619 MHz</mem_clock>
			<video_clock>1545 MHz</video_clock>
		</clocks>
		<applications_clocks>
			<graphics_clock>Requested functionality has been deprecated</graphics_clock>
			<mem_clock>Requested functionality has been deprecated</mem_clock>
		</applications_clocks>
		<max_clocks>
			<graphics_clock>1980 MHz</graphics_clock>
			<sm_clock>1980 MHz</sm_clock>
			<mem_clock>2619 MHz</mem_clock>
		</max_clocks>
		<fabric>
			<state>In Progress</state>
			<status>N/A</status>
		</fabric>
		<supported_clocks>
			<supported_mem_clock>
				<value>2619 MHz</value>
				<supported_graphics_clock>1980 MHz</supported_graphics_clock>
			</supported_mem_clock>
		</supported_clocks>
		<processes>
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>4711</pid>
				<type>C</type>
				<process_name>/opt/conda/bin/python</process_name>
				<used_memory>39000 MiB</used_memory>
			</process_info>
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>4712</pid>
				<type>C</type>
				<process_name>serve &amp; wait & see</process_name>
				<used_memory>N/A</used_memory>
			</process_info>
		</processes>
		<accounted_processes>
			<accounted_process_info>
				<pid>5</pid>
				<gpu_util>1 %</gpu_util>
				<max_memory_usage>1 MiB</max_memory_usage>
			</accounted_process_info>
		</accounted_processes>
	</gpu>

</nvidia_smi_log>
"""

OLD = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v9.dtd">
<nvidia_smi_log>
    <timestamp>Mon Mar  4 08:00:00 2019</timestamp>
    <driver_version>390.77</driver_version>
    <attached_gpus>2</attached_gpus>
    <gpu id="0000:05:00.0">
        <product_name>Tesla V100-SXM2-16GB</product_name>
        <uuid>GPU-0a0a0a0a-1111-2222-3333-444444444444</uuid>
        <minor_number>1</minor_number>
        <fan_speed>38 %</fan_speed>
        <performance_state>P8</performance_state>
        <clocks_throttle_reasons>
            <clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
            <clocks_throttle_reason_applications_clocks_setting>Not Active
            </clocks_throttle_reason_applications_clocks_setting>
            <clocks_throttle_reason_sw_power_cap>Not Active</clocks_throttle_reason_sw_power_cap>
            <clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
            <clocks_throttle_reason_sync_boost>Not Active</clocks_throttle_reason_sync_boost>
        </clocks_throttle_reasons>
        <fb_memory_usage>
            <total>16160 MiB</total>
            <used>11 MiB</used>
            <free>16149 MiB</free>
        </fb_memory_usage>
        <bar1_memory_usage>
            <total>16384 MiB</total>
            <used>2 MiB</used>
        </bar1_memory_usage>
        <utilization>
            <gpu_util>0 %</gpu_util>
            <memory_util>0 %</memory_util>
        </utilization>
        <ecc_mode>
            <current_ecc>Enabled</current_ecc>
            <pending_ecc>Enabled</pending_ecc>
        </ecc_mode>
        <ecc_errors>
            <volatile>
                <single_bit>
                    <device_memory>4</device_memory>
                    <register_file>1</register_file>
                    <total>5</total>
                </single_bit>
                <double_bit>
                    <device_memory>2</device_memory>
                    <total>2</total>
                </double_bit>
            </volatile>
            <aggregate>
                <single_bit>
                    <total>70</total>
                </single_bit>
                <double_bit>
                    <total>80</total>
                </double_bit>
            </aggregate>
        </ecc_errors>
        <temperature>
            <gpu_temp>33 C</gpu_temp>
            <gpu_temp_max_threshold>90 C</gpu_temp_max_threshold>
            <gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold>
            <gpu_temp_max_gpu_threshold>83 C</gpu_temp_max_gpu_threshold>
            <memory_temp>30 C</memory_temp>
            <gpu_temp_max_mem_threshold>85 C</gpu_temp_max_mem_threshold>
        </temperature>
        <power_readings>
            <power_state>P8</power_state>
            <power_management>Supported</power_management>
            <power_draw>41.70 W</power_draw>
            <power_limit>300.00 W</power_limit>
            <default_power_limit>300.00 W</default_power_limit>
            <enforced_power_limit>250.00 W</enforced_power_limit>
        </power_readings>
        <clocks>
            <graphics_clock>0 MHz</graphics_clock>
            <sm_clock>0 MHz</sm_clock>
            <mem_clock>877 MHz</mem_clock>
        </clocks>
        <processes>
        </processes>
    </gpu>
    <gpu id="0000:06:00.0">
        <product_name>Tesla V100-SXM2-16GB</product_name>
        <uuid>GPU-0b0b0b0b-1111-2222-3333-444444444444</uuid>
        <minor_number>0</minor_number>
        <processes>
            <process_info>
                <pid>77</pid>
                <type>C</type>
                <process_name>python</process_name>
                <used_memory>305 MiB</used_memory>
            </process_info>
        </processes>
    </gpu>
</nvidia_smi_log>
"""

SPLIT = """\
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
    <attached_gpus>1</attached_gpus>
    <gpu id="00000000:07:00.0">
        <product_name>NVIDIA A100-SXM4-40GB</product_name>
        <mig_mode>
            <current_mig>Enabled</current_mig>
        </mig_mode>
        <mig_devices>
            <mig_device>
                <index>0</index>
                <gpu_instance_id>1</gpu_instance_id>
                <compute_instance_id>0</compute_instance_id>
                <device_attributes>
                    <shared>
                        <multiprocessor_count>42</multiprocessor_count>
                    </shared>
                </device_attributes>
                <fb_memory_usage>
                    <total>20096 MiB</total>
                    <used>37 MiB</used>
                </fb_memory_usage>
                <bar1_memory_usage>
                    <total>32767 MiB</total>
                    <used>1 MiB</used>
                </bar1_memory_usage>
            </mig_device>
            <mig_device>
                <index>1</index>
                <gpu_instance_id>2</gpu_instance_id>
                <compute_instance_id>0</compute_instance_id>
                <fb_memory_usage>
                    <total>20096 MiB</total>
                    <used>9000 MiB</used>
                </fb_memory_usage>
            </mig_device>
        </mig_devices>
        <uuid>GPU-22222222-1111-2222-3333-444444444444</uuid>
        <fb_memory_usage>
            <total>40960 MiB</total>
            <used>9037 MiB</used>
        </fb_memory_usage>
        <utilization>
            <gpu_util>N/A</gpu_util>
        </utilization>
        <temperature>
            <gpu_temp>41 C</gpu_temp>
        </temperature>
        <processes>
            <process_info>
                <gpu_instance_id>2</gpu_instance_id>
                <compute_instance_id>0</compute_instance_id>
                <pid>900</pid>
                <process_name>python3</process_name>
                <used_memory>8990 MiB</used_memory>
            </process_info>
        </processes>
    </gpu>
</nvidia_smi_log>
"""

SAMPLES: tuple[str, ...] = (MODERN, OLD, SPLIT)
